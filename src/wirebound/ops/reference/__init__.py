"""All ops in plain torch: what other backends are tested against, and what runs where they cannot."""
