// Package pages serves the pages of a run on a port of this machine alone.
package pages
