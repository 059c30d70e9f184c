"""`doctor`: what is wrong, or will be. It changes nothing, and needs neither Java nor Spark."""
