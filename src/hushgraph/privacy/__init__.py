"""The promise and its price: units, mechanisms, plans and the accounting of what they cost."""
