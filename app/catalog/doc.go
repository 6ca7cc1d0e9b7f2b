// Package catalog lists the runs of a folder, and removes them. It reads a few small files and the end of the trace of
// each, so that a folder of long runs is listed at once.
package catalog
