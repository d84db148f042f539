"""What a run was: timeline files, figures computed from intervals, and how they are shown."""
