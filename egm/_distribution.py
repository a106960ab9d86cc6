"""Hold the name under which this package is installed: `elliptical-gaussian-mechanism`.

On the package registry the name "egm" belongs to another project.
"""

NAME = "elliptical-gaussian-mechanism"
