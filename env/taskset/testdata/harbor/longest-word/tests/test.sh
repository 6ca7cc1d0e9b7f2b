#!/bin/bash
# The reward is 1 for the right word, 0 for another or for none.
mkdir -p /logs/verifier
if printf 'towpath\n' | cmp -s - longest.txt; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
