"""One failing call: policy, kinds of failure, delay, deadline, decision, note of giving up."""
