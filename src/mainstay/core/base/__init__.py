"""What every room of the core builds on: values, validation, arithmetic, time, stored changes."""
