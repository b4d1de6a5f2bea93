"""Tables, SVG and text out of plans. Pure: values in, text out."""
