// Package report prints what a run, a simulation or a prediction came to: plain
// tables for a terminal, and one HTML file that needs nothing else (no script,
// no font, no request) with plots as SVG in light and dark.
//
// It prints what it is given and computes nothing but shares and layout: all
// figures come in through [Run]. A figure that is not known is NaN and prints
// as "–"; text that came from a model or a file is escaped.
package report
