"""What every folder of core/ builds on: values, validation, arithmetic, time, stored changes."""
