"""A language model that follows a script: it raises the weight that it is shown; now and then it errs."""

import asyncio
import hashlib

from programs import program, weight_of


class Scripted:
    def __init__(self, config):
        self.config = config

    async def generate(self, prompt, **more):
        return await self.generate_with_context("", [{"role": "user", "content": prompt}], **more)

    async def generate_with_context(self, system_message, messages, **more):
        await asyncio.sleep(0)
        text = messages[-1]["content"]
        draw = hashlib.sha256((text + str(more.get("seed"))).encode()).digest()
        weight = min(0.95, weight_of(text) + 0.02 + draw[0] / 500)
        remark = "hang" if draw[1] < 24 else ""
        source = program(weight, remark)
        if 24 <= draw[1] < 48:
            source = source.replace("def rate(instance):", "def rate(instance:")
        return f"Raise the weight.\n\n```python\n{source}```\n"


def make(config):
    return Scripted(config)
