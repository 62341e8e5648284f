"""The three operators as models answer them: prompts out, checked JSON back, through the one seam."""
