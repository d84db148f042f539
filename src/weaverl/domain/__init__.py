"""The words of the project as plain frozen records: jobs, cluster, groups, events, commands, facts."""
