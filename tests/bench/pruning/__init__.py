"""What old tool results cost in long tool sessions, by the rule that shortens them."""
