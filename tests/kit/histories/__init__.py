"""Random histories of conversations, played through the real core to check twelve promises."""
