"""What T3D needs and any program might: errors, files, numbers, random streams, this machine."""
