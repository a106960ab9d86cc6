"""Hold the name of the package in the package registry: `elliptical-gaussian-mechanism`.

In the registry the name "egm", by which Python imports the package, belongs to another project.
"""

NAME = "elliptical-gaussian-mechanism"
