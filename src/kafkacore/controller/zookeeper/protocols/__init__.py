"""The ten protocols of the redesign, one module for each section."""
