// Package starter makes the files that a new project begins with: a document, a trainer, an environment and a page of
// commands. Programs and tasks are those of the examples, which tests run.
package starter
