"""What ``why`` looks at, one subject a module: ``async def section(context) -> Section | None``."""
