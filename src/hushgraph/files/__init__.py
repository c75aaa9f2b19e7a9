"""Files: written whole or not at all; read with budgets, one kind of error, and nothing executed."""
