// Package host is what local drivers keep on their host for each box: a directory that tells the
// next process of it, and a control group that bounds what it takes.
package host
