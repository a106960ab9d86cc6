"""Hold the name by which pip installs this package.

On the registry the name "egm" belongs to another project.
"""

NAME = "elliptical-gaussian-mechanism"
