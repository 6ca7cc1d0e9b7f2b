// Package host is the state that local drivers keep on their host for each box. That is a directory
// that tells the next process of it, and a control group that bounds its use of resources.
package host
