"""Graphs from tables, files of other tools and objects of other libraries, by public rules.

What is read off private values (a range, a list of categories, an average for what is missing) is never used: it is
declared, or the column is refused.
"""
