// Package jsonline reads and writes the lines of the library's files: JSON
// objects, one a line, that are strict enough to be compared byte by byte.
//
// The keys of an object stand in a fixed order, none twice and none unknown.
// Times and spans are strings of decimal seconds, exact to the nanosecond. A
// mistake is told with its place and with what was expected there.
package jsonline
