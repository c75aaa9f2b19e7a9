"""What releases cost: events, privacy loss, calibration, plans, selection. Thin over `dp_accounting`."""
