// Package experiment simulates documents: one, or a grid of settings with seeds. It
// makes a document a case for closed forms and simulator, lets a simulation settle,
// judges its means, and writes tables, pages and rows. It predicts from closed forms
// where these cover the rules, and from a short simulation elsewhere.
package experiment
