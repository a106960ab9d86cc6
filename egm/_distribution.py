"""What pip calls this package: "egm" is somebody else's on the registry, and would be installed in its place."""

NAME = "elliptical-gaussian-mechanism"
