"""The documentation site's generated pages: `make docs`."""
