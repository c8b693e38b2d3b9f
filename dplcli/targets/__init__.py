"""What a backend needs beyond a catalogue: the contract that its kernels have to keep."""
