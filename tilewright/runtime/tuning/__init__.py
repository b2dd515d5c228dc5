"""What tuning consists of: measuring a configuration, keeping arguments as they were, compiling
many at once, results on disk, and telling the user."""
