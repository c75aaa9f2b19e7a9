"""The promise: units, mechanisms and plans, and the accounting of what they cost."""
