"""Hold the name by which pip installs this package.

On the registry the name "egm" belongs to another project, which `pip install egm` would install instead.
"""

NAME = "elliptical-gaussian-mechanism"
