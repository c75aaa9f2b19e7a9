"""What was spent on each dataset, and what that proves."""
