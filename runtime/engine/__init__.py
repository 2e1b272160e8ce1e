"""What a built step consists of: models, optimizers and state of one framework, observed and named."""
