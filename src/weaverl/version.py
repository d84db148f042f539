"""The version of weaverl, where modules below the package can reach it."""

VERSION = "0.1.0"
