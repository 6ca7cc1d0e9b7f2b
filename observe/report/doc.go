// Package report prints the results of a run, a simulation or a prediction. It makes plain tables
// for a terminal. It also makes one HTML file that needs no script, font or request, with plots as
// SVG in light and dark.
//
// It prints what it is given and computes nothing but shares and layout: all
// figures come in through [Run]. A figure that is not known is NaN and prints
// as "–"; text that came from a model or a file is escaped.
package report
