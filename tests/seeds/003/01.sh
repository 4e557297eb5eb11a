uv run python main.py --task tasks.eval.question_answering.simpleqa --num_records 50
