"""The catalogue of mistakes in training loops written by hand: every row of docs/catalogue.md is shown here."""
