"""What people see: one Table for terminal, HTML, Markdown and CSV, one page writer, and pictures."""
