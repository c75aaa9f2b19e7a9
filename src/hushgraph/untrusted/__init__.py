"""Reading what somebody else may have written: budgets before memory is taken, one kind of error, nothing executed."""
