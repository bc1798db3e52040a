"""Asks a model: OPENAI_API_KEY=... ask_openai.py "What is a hawser?"."""

import os
import sys

import openai

import mainstay

client = openai.OpenAI(timeout=float(os.environ.get("OPENAI_TIMEOUT", "30")))
client = client.with_options(max_retries=0)  # the attempts are those of mainstay


@mainstay.retry(on=mainstay.transient, attempts=3, deadline=120.0)
def ask(question):
    messages = [{"role": "user", "content": question}]
    answer = client.chat.completions.create(model="gpt-5.5", messages=messages)
    return answer.choices[0].message.content


print(ask(sys.argv[1]))
