"""What is known of models, optimizers and parameters before anything is ordered."""
