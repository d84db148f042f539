"""The command line. Commands parse and validate first and import what is heavy after."""
