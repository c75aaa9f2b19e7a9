"""What was spent on each dataset, by whom and why, and what that proves. Nothing here imports torch."""
