uv run python main.py --task eval/classification/simpleqa --num_records 50
