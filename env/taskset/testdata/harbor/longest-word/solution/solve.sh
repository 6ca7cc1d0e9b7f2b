#!/bin/bash
awk 'length($0) > length(best) { best = $0 } END { print best }' words.txt > longest.txt
