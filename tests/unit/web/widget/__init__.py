"""Tests of the widget's scripts in Node, without a page."""
