"""Plans, audits and stories as text, data, SVG and HTML. Pure: values in, text out."""
