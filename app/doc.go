// Package app turns a document into running parts, and holds what they may
// know of the process around them.
package app
