#!/bin/bash
mkdir -p /logs/verifier
python3 /tests/judge.py "${ROUNDS:-50}" > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
